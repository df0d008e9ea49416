"""The console in Chromium, against a broker of ours."""
