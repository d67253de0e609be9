"""Access: identities, rules and tokens, and the gate that calls pass where access is limited."""
