# title: NVIDIA's container toolkit
# for: container_toolkit
# warn: container_toolkit
# only: engine
# wait: no-toolkit
have_toolkit() {
  command -v nvidia-ctk >/dev/null && return 0
  case $(docker info --format '{{.OperatingSystem}}' 2>/dev/null || true) in 'Docker Desktop'*) return 0 ;; *) return 1 ;; esac
}
do_toolkit() {
  apt_get update
  apt_get install ca-certificates curl gnupg
  trusted_key "$toolkit_key" "$toolkit_key_is" /usr/share/keyrings/nvidia-container-toolkit.asc
  # shellcheck disable=SC2016 # apt itself puts the architecture there
  printf 'deb [signed-by=/usr/share/keyrings/nvidia-container-toolkit.asc] %s/deb/$(ARCH) /\n' "$toolkit_repository" |
    write_file /etc/apt/sources.list.d/nvidia-container-toolkit.list
  apt_get update
  apt_get install nvidia-container-toolkit
}
