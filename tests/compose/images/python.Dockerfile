# A stand-in for `python:3.11-slim-bookworm`, where no image registry is reachable: Debian, and this machine's Python.
FROM scratch
ADD debian.tar /
ADD python.tar /usr/local
RUN echo /usr/local/lib > /etc/ld.so.conf.d/python.conf \
    && ldconfig \
    && ln -sf python3.11 /usr/local/bin/python3 \
    && ln -sf python3 /usr/local/bin/python \
    && python -m ensurepip --default-pip \
    && ln -sf pip3 /usr/local/bin/pip
ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8
CMD ["python3"]
