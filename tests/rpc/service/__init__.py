"""Services: responders, limits, lifespan, health, subscribers, stopping."""
