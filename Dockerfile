# An environment to work on presim: what .ci/run installs on a bare Debian 12. The checkout is mounted, not copied:
#   docker build -t presim . && docker run -it -v "$PWD:/presim" presim make demo
FROM debian:12
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends ca-certificates
COPY .ci/system /tmp/system
RUN /tmp/system && rm -rf /var/lib/apt/lists/*
WORKDIR /presim
