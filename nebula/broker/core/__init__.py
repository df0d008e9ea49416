"""The broker core: destinations, subscriptions, sessions, rights and limits. Pure."""
