"""The machinery between plugin and engine: encoding spans, tokens to text, marks to segments."""
