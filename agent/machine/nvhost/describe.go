package nvhost

import (
	"context"
	"errors"
	"fmt"
)

// CDIFolder and CDIFile are where NVIDIA's container toolkit keeps the CDI specification of the GPUs.
const (
	CDIFolder = "/var/run/cdi"
	CDIFile   = "nvidia.yaml"
)

// DescribeGPUs has the CDI specification written again: by the unit of the container toolkit, which versions from 1.18
// on have, or else by its program. It first makes the device nodes of new slices.
func (h Host) DescribeGPUs(ctx context.Context) error {
	h = h.defaults()
	if _, err := h.Run(ctx, "nvidia-smi", "-L"); err != nil { // makes the nodes
		return fmt.Errorf("nvidia-smi -L: %w", err)
	}
	_, byUnit := h.Run(ctx, "systemctl", "restart", "nvidia-cdi-refresh.service")
	if byUnit == nil {
		return nil
	}
	_, err := h.Run(ctx, "nvidia-ctk", "cdi", "generate", "--output="+CDIFolder+"/"+CDIFile,
		"--device-name-strategy=uuid", "--device-name-strategy=index")
	if err != nil {
		return errors.Join(fmt.Errorf("systemctl restart nvidia-cdi-refresh.service: %w", byUnit),
			fmt.Errorf("nvidia-ctk cdi generate: %w", err))
	}
	return nil
}
