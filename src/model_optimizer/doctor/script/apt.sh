apt_get() { as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l apt-get -y "$@"; }

# The version of an installed package without its epoch; empty when it is not installed.
installed() {
  # shellcheck disable=SC2016 # these are fields of dpkg-query
  dpkg-query -W -f='${db:Status-Abbrev} ${Version}\n' "$1" 2>/dev/null |
    awk '$1 ~ /^.i/ { sub(/^[0-9]+:/, "", $2); print $2 }' || true
}
