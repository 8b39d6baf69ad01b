package image

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/musterhq/muster/internal/agentapi"
)

// Driver is the host's GPU driver; zero if there is none, or if its versions are unknown.
type Driver struct {
	AMD     bool   // the host's GPUs are AMD's; the other fields are NVIDIA's
	Version string // 550.90.07
	CUDA    string // newest supported version, such as "12.4"
	// Models are the names of the host's GPUs: NVIDIA's images take older drivers for some brands only.
	Models []string
}

// runs returns an error if the image requires a newer CUDA or driver than d: the container toolkit would refuse to
// start it, after a complete pull. Under CDI nothing else checks the
// brand. The container toolkit checks the other requirements (arch).
func (d Driver) runs(c v1.Config) error {
	if d.AMD {
		if need := requirements(c); len(need) > 0 {
			return &Error{Reason: agentapi.ReasonImageNewerCUDA,
				Detail: fmt.Sprintf("it is made for NVIDIA's GPUs (%s), and this host's are AMD's: use an image with ROCm, or "+
					"ask for gpu_vendor = nvidia", clip(need[0]))}
		}
		return nil
	}
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

// requirements returns what an image requires of the driver, as the NVIDIA container toolkit reads it: NVIDIA_REQUIRE_*
// in its environment or, without NVIDIA_REQUIRE_CUDA, the CUDA version that the image was built for.
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

// meets evaluates a requirement: alternatives separated by spaces, whose conditions are separated by commas. Conditions
// on anything but cuda and driver, and conditions that do not parse, count as met.
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
	if name, brand := c[:i], strings.TrimLeft(c[i:], "<>=!"); name == "brand" {
		has := brands(d.Models)
		return len(has) == 0 || slices.Contains(has, brand) == !strings.HasPrefix(c[i:], "!=")
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

// brands returns the brands of GPUs as the container toolkit names them, by the models' names; none if one of them is
// not known. NVML reports data-centre GPUs as "tesla" or "nvidia", which their names do not show.
func brands(models []string) []string {
	var out []string
	for _, m := range models {
		rest := strings.TrimPrefix(m, "NVIDIA ")
		switch {
		case strings.HasPrefix(rest, "GeForce RTX"):
			out = append(out, "geforcertx")
		case strings.HasPrefix(rest, "GeForce"):
			out = append(out, "geforce")
		case strings.HasPrefix(rest, "Quadro RTX"):
			out = append(out, "quadrortx")
		case strings.HasPrefix(rest, "Quadro"):
			out = append(out, "quadro")
		case strings.HasPrefix(rest, "TITAN RTX"):
			out = append(out, "titanrtx")
		case strings.HasPrefix(rest, "TITAN"):
			out = append(out, "titan")
		case strings.HasPrefix(rest, "RTX"):
			out = append(out, "nvidiartx")
		case dataCentre.MatchString(rest):
			out = append(out, "tesla", "nvidia")
		default:
			return nil
		}
	}
	return out
}

var dataCentre = regexp.MustCompile(`^(Tesla|[ABHLPTV][0-9]+|GH200|GB200|B[0-9]+)`)

// numbers returns the parts of a dotted version, or nil if s is none.
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

// clip limits the length of text from an image that is shown to people.
func clip(s string) string {
	if len(s) > 120 {
		return strings.ToValidUTF8(s[:120], "") + "…"
	}
	return s
}
