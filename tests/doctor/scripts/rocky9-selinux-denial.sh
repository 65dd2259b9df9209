#!/usr/bin/env bash
# Made by `mopt doctor --script` from what was read on 2026-11-30. Read it before you run it.
# It makes so:
#   1. SELinux lets containers use devices
# What is so already is left alone, so it may be run again at any time. It stops where a
# reboot or a person is needed, and goes on from there. With --check it only says what is
# missing. Where root is needed it asks for it with sudo.

# ... prelude

made_for='rocky 9.6'
if [ "$(os_release ID) $(os_release VERSION_ID)" != "$made_for" ]; then
  by_hand "this script is for $made_for" "make one here: mopt doctor --script"
fi

# ... dnf

boolean() { getsebool container_use_devices 2>/dev/null || true; }
have_selinux() { case $(boolean) in *' on') return 0 ;; *) return 1 ;; esac; }
do_selinux() {
  if [ -z "$(boolean)" ]; then as_root dnf -y install container-selinux; fi
  if [ -z "$(boolean)" ]; then
    by_hand 'this SELinux policy has no boolean container_use_devices' 'start containers with --security-opt label=disable'
  fi
  as_root setsebool -P container_use_devices 1
}
step selinux 'SELinux lets containers use devices'

if command -v nvidia-smi >/dev/null; then timeout 30 nvidia-smi -L || true; fi

# ... finish
