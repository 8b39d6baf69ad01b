package gpu

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/musterhq/muster/internal/agentapi"
)

// modeProblems returns what the GPUs are set up for that keeps programs from using them, although NVML and a look at
// nvidia-smi show nothing wrong.
func modeProblems(gpus []agentapi.GPU) []agentapi.Problem {
	var unlicensed, products, unready []string
	for _, g := range gpus {
		if g.VGPU != nil && !g.VGPU.Licensed.Or(true) {
			unlicensed, products = append(unlicensed, strconv.Itoa(g.Index)), append(products, g.VGPU.Product)
		}
		if !g.ConfidentialReady.Or(true) {
			unready = append(unready, strconv.Itoa(g.Index))
		}
	}
	var out []agentapi.Problem
	if len(unlicensed) > 0 {
		out = append(out, agentapi.Problem{
			Code:     "vgpu_unlicensed",
			Severity: "bad",
			Cause: fmt.Sprintf("GPU %s is a vGPU without a licence: its driver slows it down and refuses work after minutes to "+
				"a day.", strings.Join(unlicensed, ", ")),
			Evidence: "nvmlDeviceGetGridLicensableFeatures, " + products[0],
			Fix: "Put the client configuration token of your licence server into /etc/nvidia/ClientConfigToken and run " +
				"systemctl restart nvidia-gridd; nvidia-smi -q shows the License Status.",
		})
	}
	if len(unready) > 0 {
		out = append(out, agentapi.Problem{
			Code:     "confidential_not_ready",
			Severity: "bad",
			Cause: fmt.Sprintf("CUDA cannot start: confidential computing is on, and GPU %s does not accept work yet "+
				"(error 802).", strings.Join(unready, ", ")),
			Evidence: "nvmlSystemGetConfComputeGpusReadyState",
			Fix:      "Attest the GPUs, then run nvidia-smi conf-compute -srs 1 after each boot.",
		})
	}
	return out
}
