package demojob

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// The model is a multilayer perceptron, inputs → hidden (tanh) → 1, fitted to a function that is known only from noisy
// samples.
const (
	inputs = 16
	hidden = 256
	batch  = 64 // samples of one rank in one step
	rate   = 0.05
	speed  = 0.9 // momentum of the gradient descent
)

// model holds all parameters in one slice: ranks exchange one gradient of the same shape.
type model struct {
	params, moved []float64
}

const paramCount = hidden*inputs + hidden + hidden + 1

// newModel returns the same initial parameters on every rank.
func newModel() *model {
	r := rand.New(rand.NewPCG(1, 2))
	m := &model{params: make([]float64, paramCount), moved: make([]float64, paramCount)}
	for i := range m.params {
		m.params[i] = r.NormFloat64() / math.Sqrt(inputs)
	}
	for i := range hidden {
		m.out()[i] /= 4
	}
	return m
}

func (m *model) weights(i int) []float64 { return m.params[i*inputs : (i+1)*inputs] }
func (m *model) bias() []float64         { return m.params[hidden*inputs : hidden*inputs+hidden] }
func (m *model) out() []float64          { return m.params[hidden*inputs+hidden : hidden*inputs+2*hidden] }

// shard is a rank's own endless sequence of samples, which no other rank uses.
type shard struct{ r *rand.Rand }

func newShard(rank int) shard { return shard{rand.New(rand.NewPCG(uint64(rank), 7))} }

// next returns one sample. The function to learn is the same for all ranks.
func (s shard) next(x []float64) (y float64) {
	for i := range x {
		x[i] = s.r.NormFloat64()
	}
	return math.Sin(x[0]+x[1]) + 0.5*x[2]*x[3] + 0.3*math.Tanh(2*x[4]) + 0.05*s.r.NormFloat64()
}

// gradient adds the gradient of the squared error over one batch of the shard, and the loss, to sum: first the
// parameters, then the loss.
func (m *model) gradient(s shard, sum []float64) {
	clear(sum)
	x, h := make([]float64, inputs), make([]float64, hidden)
	for range batch {
		y := s.next(x)
		guess := m.params[paramCount-1]
		for i := range hidden {
			z := m.bias()[i]
			for j, w := range m.weights(i) {
				z += w * x[j]
			}
			h[i] = math.Tanh(z)
			guess += m.out()[i] * h[i]
		}
		miss := guess - y
		sum[paramCount] += miss * miss
		sum[paramCount-1] += miss
		for i := range hidden {
			sum[hidden*inputs+hidden+i] += miss * h[i]
			back := miss * m.out()[i] * (1 - h[i]*h[i])
			sum[hidden*inputs+i] += back
			for j := range x {
				sum[i*inputs+j] += back * x[j]
			}
		}
	}
}

// step moves the parameters against the gradient of all ranks' samples and returns their mean loss.
func (m *model) step(sum []float64, world int) (loss float64) {
	n := float64(batch * world)
	for i := range m.params {
		m.moved[i] = speed*m.moved[i] - rate/hidden*8*sum[i]/n
		m.params[i] += m.moved[i]
	}
	return sum[paramCount] / n
}

// checksum differs for parameters that differ in a single bit.
func (m *model) checksum() [sha256.Size]byte {
	b := make([]byte, 0, 8*paramCount)
	for _, p := range m.params {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(p))
	}
	return sha256.Sum256(b)
}

// checksumWords is a checksum's length in numbers that stay exact when they are summed with zeros.
const checksumWords = sha256.Size / 4

func (m *model) checksumNumbers() []float64 {
	sum, out := m.checksum(), make([]float64, checksumWords)
	for i := range out {
		out[i] = float64(binary.LittleEndian.Uint32(sum[4*i:]))
	}
	return out
}
