from model_optimizer.cli import main

main()
