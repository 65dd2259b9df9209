# title: Secure Boot takes the driver's module
# for: secure_boot driver_installed module_flavour dkms_built kernel_headers
# only: secure-boot
# place: ubuntu debian rhel9 rhel10
have_secure_boot() {
  [ -e "$root/proc/driver/nvidia/version" ] && return 0 # the kernel took it
  command -v mokutil >/dev/null || return 1
  case $(mokutil --sb-state 2>&1 || true) in *enabled*) ;; *) return 0 ;; esac
  case $(mokutil --test-key "$root$mok" 2>&1 || true) in *'already enrolled'*) return 0 ;; *) return 1 ;; esac
}
do_secure_boot() {
  if ! command -v mokutil >/dev/null; then
    if command -v apt-get >/dev/null; then as_root apt-get -y install mokutil; else as_root dnf -y install mokutil; fi
  fi
  if [ ! -e "$root$mok" ]; then
    if command -v update-secureboot-policy >/dev/null; then
      as_root update-secureboot-policy --new-key
    else
      as_root dkms generate_mok
    fi
  fi
  if [ -z "$(mokutil --list-new 2>/dev/null || true)" ]; then
    say 'choose a password that is needed once, at the next start'
    as_root mokutil --import "$root$mok"
  fi
  reboot_point secure_boot 'in the blue screen at the next start: Enroll MOK, Continue, Yes, that password'
}
