"""One class for each kind of destination. They know messages and subscriptions, nothing of frames."""
