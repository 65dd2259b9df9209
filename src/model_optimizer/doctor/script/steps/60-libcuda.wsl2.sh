# title: WSL2 has the libcuda of Windows
# for: wsl_libcuda wsl_driver_inside driver_present
have_libcuda() { [ -e "$root/usr/lib/wsl/lib/libcuda.so.1" ]; }
do_libcuda() {
  by_hand 'Windows provides no libcuda' \
    "on Windows: install driver $branch or newer with the NVIDIA App" \
    'in PowerShell: wsl --update; wsl --shutdown'
}
