# title: SELinux lets containers use devices
# for: selinux_allows
# warn: selinux_allows
# only: selinux
# wait: boolean-off
boolean() { getsebool container_use_devices 2>/dev/null || true; }
have_selinux() { case $(boolean) in *' on') return 0 ;; *) return 1 ;; esac; }
do_selinux() {
  if [ -z "$(boolean)" ]; then as_root dnf -y install container-selinux; fi
  if [ -z "$(boolean)" ]; then
    by_hand 'this SELinux policy has no boolean container_use_devices' 'start containers with --security-opt label=disable'
  fi
  as_root setsebool -P container_use_devices 1
}
