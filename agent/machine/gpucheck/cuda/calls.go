package cuda

import (
	"sync"

	"github.com/musterhq/muster/agent/machine/gpucheck"
)

// calls are the calls of CUDA of this process.
var calls recorder

type recorder struct {
	mu   sync.Mutex
	list []gpucheck.Call // in the order of their first occurrence
}

func (r *recorder) add(call string, code int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, c := range r.list {
		if c.Call == call && c.Code == code {
			r.list[i].Times++
			return
		}
	}
	r.list = append(r.list, gpucheck.Call{Call: call, Code: code, Times: 1})
}
