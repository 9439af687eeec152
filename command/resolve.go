package command

import (
	"context"
	"net/netip"
	"time"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/webhook"
)

// Resolver looks names up; net.DefaultResolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// resolvePatience is how long a name may take to resolve. One that takes longer is let through.
const resolvePatience = 2 * time.Second

// judgeHost says, as field.Errors, that the name in a URL resolves to an address that is no public host's. It is for a
// clear answer: a name may resolve to something else later, and one that does not resolve now may then, so every
// connection is judged again.
func (h *Handlers) judgeHost(ctx context.Context, url string) error {
	name, ok := webhook.HostToResolve(url)
	if h.privateTargets || !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolvePatience)
	defer cancel()
	addresses, _ := h.resolver.LookupNetIP(ctx, "ip", name) // an error is as good as no address
	for _, address := range addresses {
		if !webhook.Public(address.Unmap()) {
			return field.Errors{{Field: "url", Message: webhook.ResolvesToPrivate}}
		}
	}
	return nil
}
