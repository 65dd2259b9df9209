# title: NVIDIA's repository, with the key that is known
# for: driver_installed module_flavour dkms_built driver_library runtime_fits_driver target_driver
# warn: driver_branch target_driver ptx_fits_driver
have_repository() { grep -qrsF "$cuda_repository" "$root/etc/apt/sources.list.d"; }
do_repository() {
  apt_get update
  apt_get install ca-certificates curl gnupg
  trusted_key "$cuda_repository/$cuda_key" "$cuda_key_is" /usr/share/keyrings/nvidia-cuda.asc
  printf 'deb [signed-by=/usr/share/keyrings/nvidia-cuda.asc] %s/ /\n' "$cuda_repository" |
    write_file /etc/apt/sources.list.d/nvidia-cuda.list
  apt_get update
}
