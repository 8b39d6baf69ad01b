// Package table is what benchmarks report: one row per figure, ours next to its baseline, with the goal.
package table

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Row is one figure.
type Row struct {
	Goal         int     `json:"goal"` // number in the list of goals
	Name         string  `json:"name"`
	Unit         string  `json:"unit"`
	Ours         float64 `json:"ours"`
	Baseline     float64 `json:"baseline"`
	BaselineName string  `json:"beside"` // what the baseline is
	Ratio        float64 `json:"ratio"`
	Want         string  `json:"want"` // the goal in words: "≥ 0.5", "> every policy"; "" = no goal, to compare with
	Met          bool    `json:"met"`
	Details      any     `json:"details,omitempty"` // every round, for the JSON
}

// Report is a whole run.
type Report struct {
	At       time.Time `json:"at"`
	Machine  string    `json:"machine"`
	Database string    `json:"database,omitempty"`
	Load     [2]string `json:"load"` // load averages of the machine before and after
	Rows     []Row     `json:"rows"`
}

// NewReport starts a report of this machine.
func NewReport() *Report {
	return &Report{At: time.Now().UTC(), Machine: machine(), Load: [2]string{loadAverage()}}
}

// End notes that everything is measured.
func (r *Report) End() { r.Load[1] = loadAverage() }

// Print writes the rows as a table for people.
func (r *Report) Print(w io.Writer) error {
	fmt.Fprintf(w, "%s · %s\n", r.At.Format("2006-01-02 15:04 MST"), r.Machine)
	if r.Database != "" {
		fmt.Fprintln(w, r.Database)
	}
	fmt.Fprintf(w, "load average %s before, %s after\n\n", r.Load[0], r.Load[1])
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "goal\tname\tours\tbaseline\tratio\twanted\t")
	for _, row := range r.Rows {
		verdict := "met"
		switch {
		case row.Want == "":
			verdict = ""
		case !row.Met:
			verdict = "MISSED"
		}
		fmt.Fprintf(t, "%d\t%s\t%s %s\t%s %s (%s)\t%.2f\t%s\t%s\n", row.Goal, row.Name, figure(row.Ours), row.Unit,
			figure(row.Baseline), row.Unit,
			row.BaselineName, row.Ratio, row.Want, verdict)
	}
	return t.Flush()
}

// figure shows three digits or more.
func figure(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}

// Save writes the report as JSON into the folder.
func (r *Report) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "bench.json"), append(b, '\n'), 0o644)
}

// Median is the middle value; of an even number, the lower middle.
func Median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return s[(len(s)-1)/2]
}

// Mean is the average.
func Mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// machine names processor, memory and system.
func machine() string {
	cpu := firstField("/proc/cpuinfo", "model name")
	ram := firstField("/proc/meminfo", "MemTotal")
	kernel := firstWords("/proc/sys/kernel/osrelease", 1)
	return fmt.Sprintf("%d × %s, %s RAM, %s %s/%s, %s", runtime.NumCPU(), cpu, ram, runtime.GOOS, kernel, runtime.GOARCH,
		runtime.Version())
}

func loadAverage() string { return firstWords("/proc/loadavg", 3) }

// firstWords of a file, or "unknown".
func firstWords(file string, n int) string {
	b, err := os.ReadFile(file)
	words := strings.Fields(string(b))
	if err != nil || len(words) < n {
		return "unknown"
	}
	return strings.Join(words[:n], " ")
}

// firstField is the value of a "name : value" line, or "unknown".
func firstField(file, name string) string {
	f, err := os.Open(file)
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if k, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(k) == name {
			return strings.Join(strings.Fields(v), " ")
		}
	}
	return "unknown"
}
