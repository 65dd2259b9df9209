set -euo pipefail
export LC_ALL=C

root=${MOPT_READY_ROOT:-}    # a folder that stands for / in a trial; empty on a real machine
state=${XDG_STATE_HOME:-$HOME/.local/state}/mopt/ready    # which reboot was asked for
only_check=no
missing=0
left=0

say() { printf '%s\n' "$*"; }

# What a person must do first: say so and stop. Running the script again goes on from here.
by_hand() {
  printf 'STOPPED: %s\n' "$1" >&2
  shift
  if [ "$#" -gt 0 ]; then printf '  do  %s\n' "$@" >&2; fi
  printf 'then run this script again\n' >&2
  exit 3
}

as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -- "$@"; fi; }

# One step: have_NAME tells whether it is so already and is the probe afterwards; do_NAME makes it so.
step() {
  local name=$1 title=$2
  if "have_$name"; then
    say "ok    $title"
    rm -f -- "$state/$name"
    return 0
  fi
  if [ "$only_check" = yes ]; then
    say "to do $title"
    missing=$((missing + 1))
    return 0
  fi
  say "doing $title"
  "do_$name"
  "have_$name" || by_hand "done, and still not so: $title" 'read what was printed above'
  say "done  $title"
}

# Stops for a reboot. A second stop after a reboot would go in circles: that one is for a person.
reboot_point() {
  local name=$1 boot before
  shift
  boot=$(cat "$root/proc/sys/kernel/random/boot_id")
  before=$(cat "$state/$name" 2>/dev/null || true)
  if [ -n "$before" ] && [ "$before" != "$boot" ]; then
    rm -f -- "$state/$name"
    by_hand 'the machine was started again and this still does not hold' "$@" 'sudo dmesg | grep -iE "nvrm|nvidia|nouveau"'
  fi
  mkdir -p -- "$state"
  printf '%s\n' "$boot" >"$state/$name"
  printf 'REBOOT: the next step needs one\n' >&2
  if [ "$#" -gt 0 ]; then printf '  do  %s\n' "$@" >&2; fi
  printf '  do  sudo reboot, then run this script again: it goes on from here\n' >&2
  exit 3
}

# A file that only root may write, from standard input; read-only folders for everybody else.
write_file() {
  as_root mkdir -p -- "$(dirname -- "$root$1")"
  as_root tee -- "$root$1" >/dev/null
}

# Fetches a signing key and keeps it only when it is the one that is known (fpr:... or sha256:...).
trusted_key() {
  local url=$1 known=$2 file=$3 folder found
  folder=$(mktemp -d)
  curl --fail --silent --show-error --location --proto '=https' --output "$folder/key" -- "$url"
  case $known in
    fpr:*) found=fpr:$(gpg --show-keys --with-colons "$folder/key" | awk -F: '$1 == "fpr" { print $10; exit }') ;;
    *) found=sha256:$(sed '/^Version/d' "$folder/key" | sha256sum | cut -d ' ' -f 1) ;;
  esac
  if [ "$found" != "$known" ]; then
    rm -rf -- "$folder"
    by_hand "the key at $url is not the one that is known ($found)" 'ask NVIDIA before trusting it'
  fi
  write_file "$file" <"$folder/key"
  rm -rf -- "$folder"
}

os_release() { sed -n "s/^$1=//p" "$root/etc/os-release" | tr -d "\"'"; }

case ${1:-} in
  '') ;;
  --check) only_check=yes ;;
  *) printf 'usage: %s [--check]\n' "$0" >&2; exit 2 ;;
esac
