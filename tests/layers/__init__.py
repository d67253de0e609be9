"""What the layers over a store take: whatever the bare store takes."""
