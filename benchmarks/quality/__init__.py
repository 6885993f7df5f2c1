"""How good transcripts of long audio are, and what they cost."""
