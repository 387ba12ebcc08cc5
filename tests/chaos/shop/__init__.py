"""An application as users write them: a web server that forks, and services that subscribe."""
