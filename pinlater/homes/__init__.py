"""Changes of where keys live, in a cluster: the record that all servers share, and what follows a change of it."""
