"""The dashboard: pages for operators in the HTTP process, which speaks to the servers as every client does."""
