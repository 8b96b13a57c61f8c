# The program with its libraries, for `score` and `serve`: no network at run time, no root, nothing written outside /data.
# `wheels` is a folder made where there is a network:
#   python -m build --wheel --outdir wheels
#   PIP_CONSTRAINT=constraints.txt pip download --dest wheels 'safeimpute[web,ehr,postgres]' --find-links wheels
#   docker build -t safeimpute .
#   docker run --rm --network none -v "$PWD:/data" safeimpute score model visits.parquet -o scored.parquet
#   docker run --rm --network host -v "$PWD:/data" safeimpute serve out/run --port 8123
FROM python:3.11-slim

RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 safeimpute

COPY wheels /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels 'safeimpute[web,ehr,postgres]' \
    && rm -rf /wheels

ENV MPLCONFIGDIR=/tmp/matplotlib PYTHONUNBUFFERED=1
USER safeimpute
WORKDIR /data
ENTRYPOINT ["safeimpute"]
CMD ["--help"]
