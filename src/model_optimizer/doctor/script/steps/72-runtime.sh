# title: Docker knows NVIDIA's runtime
# for: runtime_registered container_toolkit
# only: docker
# wait: no-runtime
# place: ubuntu debian rhel9 rhel10 wsl2
have_runtime() {
  grep -qs nvidia-container-runtime "$root/etc/docker/daemon.json" && return 0
  case $(docker info --format '{{.OperatingSystem}}' 2>/dev/null || true) in 'Docker Desktop'*) return 0 ;; *) return 1 ;; esac
}
do_runtime() {
  as_root nvidia-ctk runtime configure --runtime=docker
  as_root systemctl reload docker # a reload takes it up and leaves running containers alone
}
