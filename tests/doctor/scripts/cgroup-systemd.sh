#!/usr/bin/env bash
# Made by `mopt doctor --script` from what was read on 2026-11-30. Read it before you run it.
# It makes so:
#   1. the CDI file describes the driver that is loaded
#   2. Docker takes devices by CDI, so that a reload of systemd leaves them to containers
# What is so already is left alone, so it may be run again at any time. It stops where a
# reboot or a person is needed, and goes on from there. With --check it only says what is
# missing. Where root is needed it asks for it with sudo.

# ... prelude

made_for='ubuntu 24.04'
if [ "$(os_release ID) $(os_release VERSION_ID)" != "$made_for" ]; then
  by_hand "this script is for $made_for" "make one here: mopt doctor --script"
fi

# ... apt

driver_now() { timeout 20 nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | sed -n 1p || true; }
cdi_files() { grep -lsF nvidia.com/gpu "$root"/etc/cdi/* "$root"/var/run/cdi/* || true; }
have_cdi() {
  local files file version
  version=$(driver_now)
  [ -n "$version" ] || return 1
  mapfile -t files < <(cdi_files)
  [ "${#files[@]}" -gt 0 ] || return 1
  for file in "${files[@]}"; do grep -qF ".so.$version" "$file" || return 1; done
}
do_cdi() {
  local files file
  mapfile -t files < <(cdi_files)
  if [ "${#files[@]}" -eq 0 ]; then files=("$root/etc/cdi/nvidia.yaml"); fi
  for file in "${files[@]}"; do
    as_root mkdir -p -- "$(dirname -- "$file")"
    as_root nvidia-ctk cdi generate --output="$file"
  done
}
step cdi 'the CDI file describes the driver that is loaded'

have_cgroup() { grep -qsE '"cdi": *true' "$root/etc/docker/daemon.json"; }
do_cgroup() {
  as_root nvidia-ctk runtime configure --runtime=docker --cdi.enabled
  if [ -n "$(as_root docker ps -q)" ]; then
    by_hand 'Docker must start again, and containers are running' 'stop them, then: sudo systemctl restart docker' \
      'start containers with --device nvidia.com/gpu=all instead of --gpus all'
  fi
  as_root systemctl restart docker
}
step cgroup 'Docker takes devices by CDI, so that a reload of systemd leaves them to containers'

if command -v nvidia-smi >/dev/null; then timeout 30 nvidia-smi -L || true; fi

# ... finish
