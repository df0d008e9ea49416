"""The module `nebula.js` in Chromium, and its types."""
