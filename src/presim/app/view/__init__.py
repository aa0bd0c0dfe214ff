"""A local web application that shows simulated jobs: timelines, memory, communication, roofline."""
