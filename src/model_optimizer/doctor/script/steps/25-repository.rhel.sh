# title: NVIDIA's repository, with the key that is known
# for: driver_installed module_flavour dkms_built driver_library runtime_fits_driver target_driver
# warn: driver_branch target_driver ptx_fits_driver
have_repository() { grep -qrsF "$cuda_repository" "$root/etc/yum.repos.d"; }
do_repository() {
  trusted_key "$cuda_repository/$cuda_key" "$cuda_key_is" /etc/pki/rpm-gpg/RPM-GPG-KEY-nvidia-cuda
  as_root rpm --import "$root/etc/pki/rpm-gpg/RPM-GPG-KEY-nvidia-cuda"
  printf '%s\n' '[nvidia-cuda]' 'name=NVIDIA CUDA and driver' "baseurl=$cuda_repository" \
    enabled=1 gpgcheck=1 gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-nvidia-cuda |
    write_file /etc/yum.repos.d/nvidia-cuda.repo
}
