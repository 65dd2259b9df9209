# title: Docker takes devices by CDI, so that a reload of systemd leaves them to containers
# for: cgroup_keeps_devices
# warn: cgroup_keeps_devices
# only: docker
# wait: systemd-cgroups
# place: ubuntu debian rhel9 rhel10
have_cgroup() { grep -qsE '"cdi": *true' "$root/etc/docker/daemon.json"; }
do_cgroup() {
  as_root nvidia-ctk runtime configure --runtime=docker --cdi.enabled
  if [ -n "$(as_root docker ps -q)" ]; then
    by_hand 'Docker must start again, and containers are running' 'stop them, then: sudo systemctl restart docker' \
      'start containers with --device nvidia.com/gpu=all instead of --gpus all'
  fi
  as_root systemctl restart docker
}
