// Declarations of the calls that segment.cpp makes, after the published interface of TensorRT 10 and 11. No code.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace nvinfer1 {

enum class DataType : std::int32_t { kFLOAT, kHALF, kINT8, kINT32, kBOOL, kUINT8, kFP8, kBF16, kINT64, kINT4 };
enum class TensorIOMode : std::int32_t { kNONE, kINPUT, kOUTPUT };

struct Dims64 {
    std::int32_t nbDims;
    std::int64_t d[8];
};
using Dims = Dims64;
struct Dims4 : Dims {
    Dims4(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t e) : Dims{4, {a, b, c, e}} {}
};

class ILogger {
public:
    enum class Severity : std::int32_t { kINTERNAL_ERROR, kERROR, kWARNING, kINFO, kVERBOSE };
    virtual void log(Severity severity, char const* text) noexcept = 0;
    virtual ~ILogger() = default;
};

class IExecutionContext {
public:
    virtual ~IExecutionContext() noexcept = default;
    bool setInputShape(char const* name, Dims const& shape) noexcept;
    Dims getTensorShape(char const* name) const noexcept;
    bool setTensorAddress(char const* name, void* memory) noexcept;
    bool enqueueV3(cudaStream_t stream) noexcept;
};

class ICudaEngine {
public:
    virtual ~ICudaEngine() noexcept = default;
    IExecutionContext* createExecutionContext() noexcept;
    std::int32_t getNbIOTensors() const noexcept;
    char const* getIOTensorName(std::int32_t index) const noexcept;
    TensorIOMode getTensorIOMode(char const* name) const noexcept;
    DataType getTensorDataType(char const* name) const noexcept;
};

class IRuntime {
public:
    virtual ~IRuntime() noexcept = default;
    ICudaEngine* deserializeCudaEngine(void const* plan, std::size_t size) noexcept;
};

IRuntime* createInferRuntime(ILogger& logger) noexcept;

}  // namespace nvinfer1
