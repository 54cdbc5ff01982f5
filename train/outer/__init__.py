"""Low-communication training: workers that train by themselves and now and then exchange their weights (DiLoCo). `worker` has what a run
calls, `exchange` what is sent."""
