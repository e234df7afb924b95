"""`headrace demo`: the whole loop on the embedded defaults, from tasks to better weights."""
