"""Old bytes of every event type and version. They are never rewritten: see regenerate.py."""
