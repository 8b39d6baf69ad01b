package demojob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// train fits the model to all ranks' data: each rank computes the gradient of its own shard, the gradients are summed
// over all ranks through the ring, and each rank takes the same step. So loss and parameters are the same on every
// rank, to the bit, which the end verifies.
func train(ctx context.Context, c config, out io.Writer) error {
	fmt.Fprintf(out, "rank %d of %d: meeting at %s:%d\n", c.rank, c.world, c.master, c.port)
	r, err := meet(ctx, c)
	if err != nil {
		return errors.Join(err, ctx.Err())
	}
	defer r.close()
	defer context.AfterFunc(ctx, r.close)()
	fmt.Fprintf(out, "rank %d of %d: training %d parameters, %d steps\n", c.rank, c.world, paramCount, c.steps)
	m, data, sum := newModel(), newShard(c.rank), make([]float64, paramCount+2)
	start, loss := time.Now(), 0.0
	step := 0
	for last := false; !last; {
		step++
		began := time.Now()
		m.gradient(data, sum)
		if exists(c.until) {
			sum[votes] = 1 // sent to all ranks with the gradient, so that all end after the same step
		}
		if err := r.allReduce(sum); err != nil {
			return stopped(ctx, step, err)
		}
		last = step == c.steps || sum[votes] > 0
		if loss = m.step(sum, c.world); math.IsNaN(loss) {
			return fmt.Errorf("step %d: the training diverged", step)
		}
		if step%c.every == 0 || last || step == 1 {
			fmt.Fprintf(out, "rank %d step %d/%d loss %.9f %.1f steps/s sent %.1f MB\n",
				c.rank, step, c.steps, loss, float64(step)/time.Since(start).Seconds(), float64(r.sent)/1e6)
		}
		select {
		case <-ctx.Done():
			return stopped(ctx, step, ctx.Err())
		case <-time.After(c.pace - time.Since(began)):
		}
	}
	if err := alike(r, m); err != nil {
		return err
	}
	fmt.Fprintf(out, "rank %d done steps=%d loss=%.9f params=sha256:%x\n", c.rank, step, loss, m.checksum())
	return nil
}

// votes is the index at which the ranks sum their votes to end, after the gradient and the loss.
const votes = paramCount + 1

func stopped(ctx context.Context, step int, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("stopped at step %d", step)
	}
	return fmt.Errorf("step %d: %w", step, err)
}

// alike compares the parameters of all ranks by their checksums, which pass through the ring once.
func alike(r *ring, m *model) error {
	sums := make([]float64, r.world*checksumWords)
	copy(sums[r.rank*checksumWords:], m.checksumNumbers())
	if err := r.allReduce(sums); err != nil {
		return err
	}
	for rank := range r.world {
		if !slices.Equal(sums[rank*checksumWords:][:checksumWords], m.checksumNumbers()) {
			return fmt.Errorf("rank %d has other parameters than rank %d", rank, r.rank)
		}
	}
	return nil
}
