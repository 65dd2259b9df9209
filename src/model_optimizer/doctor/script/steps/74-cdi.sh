# title: the CDI file describes the driver that is loaded
# for: cdi_current container_toolkit runtime_registered
# warn: cgroup_keeps_devices driver_branch
# only: engine
# wait: cdi-or-no-toolkit
# place: ubuntu debian rhel9 rhel10
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
