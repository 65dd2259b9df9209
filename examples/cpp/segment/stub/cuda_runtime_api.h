// Declarations of the calls that segment.cpp makes, after the published interface of CUDA's runtime. No code.
#pragma once
#include <cstddef>

using cudaStream_t = struct CUstream_st*;
enum cudaError_t { cudaSuccess = 0 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };

cudaError_t cudaMalloc(void** memory, std::size_t size);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMemcpyAsync(void* to, void const* from, std::size_t size, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
char const* cudaGetErrorString(cudaError_t status);
