package probe

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

// call makes one NVML call, if the library has the function. Every NVML call of this package goes through here. symbol
// is the function's name, without the version if go-nvml chooses one.
func call[T any](p *probe, symbol string, f func() (T, nvml.Return)) (T, *wire.Error) {
	var zero T
	if !p.symbol(symbol) {
		if p.record != nil {
			p.record(symbol, nvml.ERROR_FUNCTION_NOT_FOUND, nil)
		}
		return zero, &wire.Error{Code: wire.CodeFunctionNotFound, Call: symbol, Text: "not in this driver's NVML"}
	}
	v, ret := f()
	if p.record != nil {
		p.record(symbol, ret, v)
	}
	if ret != nvml.SUCCESS {
		return zero, &wire.Error{Code: int(ret), Call: symbol, Text: p.text(ret)}
	}
	return v, nil
}

// optional converts a fact that a device may not report: a value, not supported, or an error.
func optional[T any](v T, err *wire.Error) agentapi.Optional[T] {
	switch {
	case err == nil:
		return agentapi.Known(v)
	case unsupported(err):
		return agentapi.Optional[T]{NotSupported: true}
	}
	return agentapi.Optional[T]{Error: err.Error()}
}

func unsupported(err *wire.Error) bool {
	return err.Code == wire.CodeNotSupported || err.Code == wire.CodeFunctionNotFound
}

// dead reports whether the device no longer answers anything, so that further calls are pointless.
func dead(err *wire.Error) bool {
	return err != nil && (err.Code == wire.CodeGPULost || err.Code == wire.CodeResetRequired)
}

// odd reports whether no healthy device gives this answer to a plain call: the codes for a device that is gone, an
// unknown error, or a code that this agent has no name for.
func odd(err *wire.Error) bool {
	if err == nil {
		return false
	}
	switch nvml.Return(err.Code) {
	case nvml.ERROR_IRQ_ISSUE, nvml.ERROR_CORRUPTED_INFOROM, nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED,
		nvml.ERROR_UNKNOWN:
		return true
	}
	return err.Code > int(nvml.ERROR_RESET_TYPE_NOT_SUPPORTED) || err.Code < 0
}

// number converts one of NVML's integers to a pointer, and passes an error on.
func number[To, From int | int32 | int64 | uint32 | uint64](v From, err *wire.Error) (*To, *wire.Error) {
	if err != nil {
		return nil, err
	}
	n := To(v)
	return &n, nil
}
