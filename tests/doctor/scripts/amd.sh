#!/usr/bin/env bash
# Made by `mopt doctor --script` from what was read on 2026-11-30. Read it before you run it.
# It makes so:
#   nothing: a script has nothing to do here
# What is so already is left alone, so it may be run again at any time. It stops where a
# reboot or a person is needed, and goes on from there. With --check it only says what is
# missing. Where root is needed it asks for it with sudo.

# ... prelude

made_for='ubuntu 24.04'
if [ "$(os_release ID) $(os_release VERSION_ID)" != "$made_for" ]; then
  by_hand "this script is for $made_for" "make one here: mopt doctor --script"
fi

printf '%s\n' 'left to you: the GPU is AMD'"'"'s: vLLM'"'"'s CUDA builds and TensorRT do not run on it' 'CUDA and TensorRT need an NVIDIA GPU; vLLM has ROCm builds of its own for MI200 and newer' 'llama.cpp runs on it with Vulkan: mopt plan MODEL --gpu NAME' 'the CPU engines work here: mopt optimize MODEL'
left=$((left + 1))

# ... finish
