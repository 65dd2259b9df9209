# title: nouveau keeps off the GPU
# for: nouveau_off driver_installed
# place: ubuntu debian rhel9 rhel10
nouveau_loaded() { grep -qsE '^(nouveau|nova_core) ' "$root/proc/modules"; }
nouveau_listed() { grep -qrsx 'blacklist nouveau' "$root/etc/modprobe.d"; }
have_nouveau() { nouveau_listed && { ! nouveau_loaded || [ -e "$state/initramfs" ]; }; }
do_nouveau() {
  printf '%s\n' 'blacklist nouveau' 'blacklist nova_core' 'options nouveau modeset=0' |
    write_file /etc/modprobe.d/blacklist-nouveau.conf
  if command -v update-initramfs >/dev/null; then as_root update-initramfs -u; else as_root dracut --force; fi
  mkdir -p -- "$state"
  : >"$state/initramfs" # the reboot comes with the driver's own, further down
}
