"""D, the datasets: simulators, strict loaders, window sampling and expectations."""
