package demand

// maxGPUs is the largest number of GPUs of a host for which filling is sampled. In a larger host, everything left
// counts as usable.
const maxGPUs = 32

// valueOf returns how much GPU the demand would use of a host in this state, in thousandths: the mean over samples of
// requests that arrive one by one and are placed if they fit.
func (o *Outlook) valueOf(s *State) float64 {
	if s.known {
		return s.value
	}
	s.known = true
	if len(s.Left) > maxGPUs || len(o.sample) == 0 {
		s.value = float64(s.free)
		return s.value
	}
	var used int64
	for _, stream := range o.sample {
		used += o.fill(s, stream)
	}
	s.value = float64(used) / float64(len(o.sample))
	return s.value
}

// fill places one stream of requests on the host and returns how much GPU they use, in thousandths.
func (o *Outlook) fill(s *State, stream []int) int64 {
	var left [maxGPUs]int64
	copy(left[:], s.Left)
	gpus := left[:len(s.Left)]
	whole := 0
	for _, n := range gpus {
		if n == Whole {
			whole++
		}
	}
	cpu, mem, free := s.CPU, s.Mem, s.free
	for _, k := range stream {
		r := &o.kinds[k].Request
		if r.CPU > cpu || r.Mem > mem || r.GPU() > free {
			continue
		}
		switch {
		case r.GPUs == 0:
		case !r.allows(s.Model):
			continue
		case r.Milli == Whole:
			if r.GPUs > whole {
				continue
			}
			takeWhole(gpus, r.GPUs)
			whole -= r.GPUs
		default:
			i := tightest(gpus, r.Milli)
			if i < 0 {
				continue
			}
			if gpus[i] == Whole {
				whole--
			}
			gpus[i] -= r.Milli
		}
		cpu, mem = cpu-r.CPU, mem-r.Mem
		if free -= r.GPU(); free == 0 {
			break
		}
	}
	return s.free - free
}

func takeWhole(gpus []int64, count int) {
	for i := 0; count > 0; i++ {
		if gpus[i] == Whole {
			gpus[i] = 0
			count--
		}
	}
}

func tightest(gpus []int64, milli int64) int {
	best := -1
	for i, n := range gpus {
		if n >= milli && (best < 0 || n < gpus[best]) {
			best = i
		}
	}
	return best
}
