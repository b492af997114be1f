// CoreDNS with the plugins that a local cluster needs, and no others: it compiles in a fraction of the time.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
	_ "github.com/coredns/coredns/plugin/template"
)

func main() {
	// The order of a server's plugins is fixed here, not in the Corefile: template, which answers whatever reaches it,
	// comes after kubernetes.
	dnsserver.Directives = []string{"reload", "errors", "health", "ready", "cache", "loadbalance", "kubernetes", "template"}
	coremain.Run()
}
