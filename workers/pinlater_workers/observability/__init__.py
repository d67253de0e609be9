"""What a worker shows of itself: counts, the pages and packets that carry them, logs."""
