// Runs the segmenter's engine that `mopt convert --to tensorrt` (or tensorrt-rtx) made, on one image of random numbers.
//
//   segment model.engine [HEIGHT WIDTH]
//
// Strongly typed engines take buffers of the types that they say; nothing is cast. Order of work on one stream:
// copy in, enqueueV3, copy out, then cudaStreamSynchronize: enqueueV3 returns before anything is computed, and the
// buffers may be read or freed only after the synchronize. (executeV2 waits by itself.)
//
// With TensorRT for RTX the header is the same; link tensorrt_rtx instead of nvinfer.

#include <NvInfer.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace {

class Log : public nvinfer1::ILogger {
    void log(Severity severity, char const* text) noexcept override {
        if (severity <= Severity::kWARNING) std::fprintf(stderr, "%s\n", text);
    }
};

[[noreturn]] void fail(std::string const& what) {
    std::fprintf(stderr, "error: %s\n", what.c_str());
    std::exit(1);
}

void check(cudaError_t status, char const* what) {
    if (status != cudaSuccess) fail(std::string(what) + ": " + cudaGetErrorString(status));
}

struct Free {
    void operator()(void* memory) const { cudaFree(memory); }
};
using Buffer = std::unique_ptr<void, Free>;

std::size_t bytes_of(nvinfer1::DataType type) {
    switch (type) {
        case nvinfer1::DataType::kFLOAT:
        case nvinfer1::DataType::kINT32: return 4;
        case nvinfer1::DataType::kHALF:
        case nvinfer1::DataType::kBF16: return 2;
        case nvinfer1::DataType::kINT64: return 8;
        default: return 1;
    }
}

std::size_t volume(nvinfer1::Dims const& shape) {
    std::size_t total = 1;
    for (int i = 0; i < shape.nbDims; ++i) {
        if (shape.d[i] < 0) fail("a size is still unknown: an input has no shape yet");
        total *= static_cast<std::size_t>(shape.d[i]);
    }
    return total;
}

std::vector<char> read(char const* path) {
    std::ifstream stream(path, std::ios::binary);
    if (!stream) fail(std::string("cannot read ") + path);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

}  // namespace

int main(int count, char** words) {
    if (count != 2 && count != 4) fail("usage: segment model.engine [HEIGHT WIDTH]");
    std::int64_t const height = count == 4 ? std::atoll(words[2]) : 640;
    std::int64_t const width = count == 4 ? std::atoll(words[3]) : 640;

    Log log;
    auto const plan = read(words[1]);
    std::unique_ptr<nvinfer1::IRuntime> runtime(nvinfer1::createInferRuntime(log));
    if (!runtime) fail("no runtime: is there a GPU and a driver?");
    std::unique_ptr<nvinfer1::ICudaEngine> engine(runtime->deserializeCudaEngine(plan.data(), plan.size()));
    if (!engine) fail("the engine is of another version or for another GPU; build it again");
    std::unique_ptr<nvinfer1::IExecutionContext> context(engine->createExecutionContext());
    if (!context) fail("not enough memory for the engine's activations");

    cudaStream_t stream{};
    check(cudaStreamCreate(&stream), "cudaStreamCreate");

    // All input shapes first: only then are the shapes of the outputs known.
    for (int i = 0; i < engine->getNbIOTensors(); ++i) {
        char const* name = engine->getIOTensorName(i);
        if (engine->getTensorIOMode(name) != nvinfer1::TensorIOMode::kINPUT) continue;
        if (!context->setInputShape(name, nvinfer1::Dims4{1, 3, height, width}))
            fail("the engine's profile does not hold this size");
    }

    std::map<std::string, Buffer> buffers;
    std::map<std::string, std::vector<char>> host;
    std::mt19937 dice(0);
    std::uniform_real_distribution<float> between(0.0F, 1.0F);
    for (int i = 0; i < engine->getNbIOTensors(); ++i) {
        char const* name = engine->getIOTensorName(i);
        auto const size = volume(context->getTensorShape(name)) * bytes_of(engine->getTensorDataType(name));
        void* memory = nullptr;
        check(cudaMalloc(&memory, std::max<std::size_t>(size, 1)), "cudaMalloc");
        buffers[name].reset(memory);
        host[name].resize(size);
        if (!context->setTensorAddress(name, memory)) fail("the engine refuses a buffer");
        if (engine->getTensorIOMode(name) == nvinfer1::TensorIOMode::kINPUT) {
            if (engine->getTensorDataType(name) != nvinfer1::DataType::kFLOAT) fail("the input is not in 32 bits");
            auto* pixels = reinterpret_cast<float*>(host[name].data());
            std::generate(pixels, pixels + size / sizeof(float), [&] { return between(dice); });
        }
    }

    auto const began = std::chrono::steady_clock::now();
    for (int i = 0; i < engine->getNbIOTensors(); ++i) {
        char const* name = engine->getIOTensorName(i);
        if (engine->getTensorIOMode(name) == nvinfer1::TensorIOMode::kINPUT)
            check(cudaMemcpyAsync(buffers[name].get(), host[name].data(), host[name].size(),
                                  cudaMemcpyHostToDevice, stream), "copy in");
    }
    if (!context->enqueueV3(stream)) fail("enqueueV3");
    for (int i = 0; i < engine->getNbIOTensors(); ++i) {
        char const* name = engine->getIOTensorName(i);
        if (engine->getTensorIOMode(name) == nvinfer1::TensorIOMode::kOUTPUT)
            check(cudaMemcpyAsync(host[name].data(), buffers[name].get(), host[name].size(),
                                  cudaMemcpyDeviceToHost, stream), "copy out");
    }
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    auto const took = std::chrono::steady_clock::now() - began;

    std::printf("%.3f ms\n", std::chrono::duration<double, std::milli>(took).count());
    for (auto const& [name, values] : host) std::printf("%s: %zu bytes\n", name.c_str(), values.size());
    cudaStreamDestroy(stream);
    return 0;
}
