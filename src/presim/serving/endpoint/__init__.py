"""An endpoint with OpenAI's and vLLM's interface, in front of simulated engines."""
