package main

import (
	"cmp"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/extsvc/svc/httpapi"
)

func withGin(api *httpapi.Handler) http.Handler {
	r := gin.New()
	r.RedirectTrailingSlash = false // gin would redirect before any middleware runs
	// Recovery comes last: anywhere else it makes a list that is cut off look complete.
	r.Use(gin.Logger(), ginCounted, ginMount(api), gin.Recovery())
	r.GET("/", gin.WrapF(home))
	r.GET("/whoami", gin.WrapH(api.Protect(http.HandlerFunc(whoami))))
	return r
}

// ginMount is api.Mount as gin middleware.
func ginMount(api *httpapi.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { c.Next() })
		api.Mount(next).ServeHTTP(c.Writer, c.Request)
		c.Abort() // the answer is complete
	}
}

func ginCounted(c *gin.Context) {
	c.Next()
	served.Add(cmp.Or(c.Request.Pattern, c.FullPath()), 1)
}
