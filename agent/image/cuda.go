package image

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/musterhq/muster/internal/agentapi"
)

// Driver is the host's NVIDIA driver; zero where there is none, or where it does not tell.
type Driver struct {
	Version string // 550.90.07
	CUDA    string // highest supported, "12.4"
}

// runs refuses an image that says it needs a newer CUDA or driver than d: the container toolkit would refuse to start
// it, after the whole of it was pulled. What an image asks for besides (brand, arch) is left to the toolkit.
func (d Driver) runs(c v1.Config) error {
	if d.CUDA == "" && d.Version == "" {
		return nil
	}
	for _, need := range requirements(c) {
		if !d.meets(need) {
			return &Error{Reason: agentapi.ReasonImageNewerCUDA,
				Detail: fmt.Sprintf("it requires %s; the host's driver %s supports CUDA up to %s", clip(need), d.Version, d.CUDA)}
		}
	}
	return nil
}

// requirements are what an image asks of the driver, as the NVIDIA container toolkit reads it: NVIDIA_REQUIRE_* in its
// environment; without NVIDIA_REQUIRE_CUDA, the version it was made for.
func requirements(c v1.Config) []string {
	env := map[string]string{}
	for _, e := range c.Env {
		if k, v, ok := strings.Cut(e, "="); ok {
			env[k] = v
		}
	}
	if off, err := strconv.ParseBool(env["NVIDIA_DISABLE_REQUIRE"]); err == nil && off {
		return nil
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(env)) {
		if strings.HasPrefix(k, "NVIDIA_REQUIRE_") && env[k] != "" {
			out = append(out, env[k])
		}
	}
	if env["NVIDIA_REQUIRE_CUDA"] != "" {
		return out
	}
	made := env["CUDA_VERSION"]
	if made == "" {
		made = c.Labels["com.nvidia.cuda.version"]
	}
	if v := numbers(made); len(v) >= 2 {
		out = append(out, fmt.Sprintf("cuda>=%d.%d", v[0], v[1]))
	}
	return out
}

// meets evaluates a requirement: alternatives apart by spaces, conditions of one apart by commas. Conditions on
// anything but cuda and driver, and those that cannot be read, count as met.
func (d Driver) meets(need string) bool {
	alternatives := strings.Fields(need)
	return len(alternatives) == 0 || slices.ContainsFunc(alternatives, func(a string) bool {
		return !slices.ContainsFunc(strings.Split(a, ","), func(c string) bool { return !d.condition(c) })
	})
}

func (d Driver) condition(c string) bool {
	i := strings.IndexAny(c, "<>=!")
	if i < 0 {
		return true
	}
	have := numbers(map[string]string{"cuda": d.CUDA, "driver": d.Version}[c[:i]])
	word := strings.TrimLeft(c[i:], "<>=!")
	want := numbers(word)
	if have == nil || want == nil {
		return true
	}
	order := slices.Compare(have[:min(len(have), len(want))], want)
	switch op := c[i : len(c)-len(word)]; op {
	case ">=":
		return order >= 0
	case ">":
		return order > 0
	case "<=":
		return order <= 0
	case "<":
		return order < 0
	case "=", "==":
		return order == 0
	case "!=":
		return order != 0
	}
	return true
}

// numbers are the parts of a dotted version; nil when it is none.
func numbers(version string) []int {
	if version == "" {
		return nil
	}
	var out []int
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 {
			return nil
		}
		out = append(out, n)
	}
	return out
}

// clip bounds an image's own words where people read them.
func clip(s string) string {
	if len(s) > 120 {
		return strings.ToValidUTF8(s[:120], "") + "…"
	}
	return s
}
