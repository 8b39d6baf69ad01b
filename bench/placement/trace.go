// Package placement measures how well and how fast placement decides: how much of a real fleet it fills compared with
// published policies, what a decision costs as the fleet grows, and how many gangs a second it places.
package placement

import (
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/internal/fleet/market/demand"
)

// Workloads are the request lists of the openb data set (alibaba/clusterdata, cluster-trace-gpu-v2023).
var Workloads = []string{"default", "multigpu20", "multigpu40", "gpuspec10", "gpuspec25"}

// Machine is one host of the data set as it is when empty.
type Machine struct {
	Name, Model string
	CPU, Mem    int64 // milli-cores, MiB
	GPUs        int
}

// DataDir is where the data set is; "" = the user has not said.
func DataDir() string { return os.Getenv("MUSTER_OPENB_DIR") }

// LoadMachines reads the fleet, by name.
func LoadMachines(dir string) ([]Machine, error) {
	var out []Machine
	err := eachRow(filepath.Join(dir, "openb_node_list_gpu_node.csv"), func(r row) error {
		m := Machine{
			Name:  r.text("sn"),
			Model: r.text("model"),
			CPU:   r.number("cpu_milli"),
			Mem:   r.number("memory_mib"),
			GPUs:  int(r.number("gpu")),
		}
		out = append(out, m)
		return *r.err
	})
	slices.SortFunc(out, func(a, b Machine) int { return strings.Compare(a.Name, b.Name) })
	return out, err
}

// LoadRequests reads one workload.
func LoadRequests(dir, workload string) ([]demand.Request, error) {
	var out []demand.Request
	err := eachRow(filepath.Join(dir, "openb_pod_list_"+workload+".csv"), func(r row) error {
		q := demand.Request{
			CPU:    r.number("cpu_milli"),
			Mem:    r.number("memory_mib"),
			GPUs:   int(r.number("num_gpu")),
			Milli:  r.number("gpu_milli"),
			Models: r.text("gpu_spec"),
		}
		if q.GPUs == 0 {
			q.Milli, q.Models = 0, ""
		}
		out = append(out, q)
		return *r.err
	})
	return out, err
}

// row is one line of a CSV file with a header.
type row struct {
	columns map[string]int
	cells   []string
	err     *error
}

// text is a cell, "" where the file has no such column.
func (r row) text(column string) string {
	if i, ok := r.columns[column]; ok {
		return r.cells[i]
	}
	return ""
}

func (r row) number(column string) int64 {
	n, err := strconv.ParseInt(r.text(column), 10, 64)
	if err != nil && *r.err == nil {
		*r.err = fmt.Errorf("%s: %w", column, err)
	}
	return n
}

func eachRow(file string, visit func(row) error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	columns := map[string]int{}
	for i, name := range lines[0] {
		columns[name] = i
	}
	for n, cells := range lines[1:] {
		if err := visit(row{columns, cells, new(error)}); err != nil {
			return fmt.Errorf("%s, line %d: %w", file, n+2, err)
		}
	}
	return nil
}

// Arrivals is a random order of requests that asks for at least as much GPU as the fleet has: the workload shuffled,
// then, where it is too small, more of its requests drawn at random.
func Arrivals(requests []demand.Request, fleet []Machine, seed uint64) []demand.Request {
	r := rand.New(rand.NewPCG(seed, 0x6d7573746572))
	out := slices.Clone(requests)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	var have int64
	for i := range out {
		have += out[i].GPU()
	}
	for have < capacity(fleet) {
		q := requests[r.IntN(len(requests))]
		have += q.GPU()
		out = append(out, q)
	}
	return out
}

// capacity of a fleet in thousandths of a GPU.
func capacity(fleet []Machine) int64 {
	var n int64
	for _, m := range fleet {
		n += int64(m.GPUs) * demand.Whole
	}
	return n
}

// demandOf is the kinds of a workload and their parts.
func demandOf(requests []demand.Request) []demand.Kind {
	count := map[demand.Request]int{}
	var order []demand.Request
	for _, q := range requests {
		if count[q]++; count[q] == 1 {
			order = append(order, q)
		}
	}
	out := make([]demand.Kind, len(order))
	for i, q := range order {
		out[i] = demand.Kind{Request: q, Part: float64(count[q]) / float64(len(requests))}
	}
	return out
}
